// head_prepare: what stands between the QKV product and attention, one workgroup a head of a row:
//   heads 0 .. heads:               q = rope(norm(q; wq)), in place
//   heads .. heads + kv_heads:      k = rope(norm(k; wk)), in place and into the row's page
//   heads + kv_heads .. + kv_heads: v, or norm(v; 0), into the row's page
// norm is RMSNorm over the head's dim with (1 + w); rope is rotate-half at position[r], frequencies [dim / 2].
// q [rows, heads * dim], k, v [rows, kv_heads * dim] f32; keys and values f16, bf16 or f32, in pages (kv.glsl). dim is even and
// at most 512.
// Bytes per head and row: 4 * dim read, 4 * dim written (q, k), 2 or 4 * dim into the page (k, v). Operations: about 8 for
// each element of q and k, and a sine and a cosine for each two.
#include "common.glsl"
#include "reduce.glsl"
#include "kv.glsl"
#include "rope.glsl"
#ifdef KV_BF16
#include "bf16.glsl"
#endif

layout(push_constant) uniform Push {
    Words state;
    Floats q;
    Floats k;
    Floats v;
    Floats wq;
    Floats wk;
    Floats frequencies_q;
    Floats frequencies_k;
    PageTables table;
    uint position;   // word index of position[0]
    uint sequence;   // word index of sequence[0]
    uint heads;
    uint kv_heads;
    uint dim;
    uint stride;     // of q, k and v: elements
    uint paging;     // kv.glsl
    uint norm_k;     // 0: k comes normed and rotated
    uint norm_v;     // 0: v is written as it is
    float eps_q;
    float eps_k;
    float eps_v;
};

shared float head[512];

void main() {
    uint r = gl_WorkGroupID.y, h = gl_WorkGroupID.x, id = gl_LocalInvocationID.x;
    if (r >= live_rows(state, STATE_ROWS)) return;
    bool is_q = h < heads, is_v = h >= heads + kv_heads;
    uint kv_head = is_v ? h - heads - kv_heads : h - heads;
    uint at = r * stride + (is_q ? h : kv_head) * dim;
    uint p = state.at[position + r];

    float sum = 0;
    for (uint i = id; i < dim; i += WORKGROUP) {
        float x = is_q ? q.at[at + i] : is_v ? v.at[at + i] : k.at[at + i];
        head[i] = x;
        sum += x * x;
    }
    float mean = workgroup_sum(sum) / float(dim);
    barrier();
    if (is_q || (!is_v && norm_k != 0)) {
        float scale = inversesqrt(mean + (is_q ? eps_q : eps_k));
        uint half_dim = dim / 2;
        for (uint j = id; j < half_dim; j += WORKGROUP) {
            float a = head[j] * scale * (1.0 + (is_q ? wq.at[j] : wk.at[j]));
            float b = head[j + half_dim] * scale * (1.0 + (is_q ? wq.at[j + half_dim] : wk.at[j + half_dim]));
            vec2 turn = rotation(p, is_q ? frequencies_q.at[j] : frequencies_k.at[j]);
            float c = turn.y, s = turn.x;
            float first = a * c - b * s, second = b * c + a * s;
            head[j] = first;
            head[j + half_dim] = second;
            if (is_q) {
                q.at[at + j] = first;
                q.at[at + j + half_dim] = second;
            } else {
                k.at[at + j] = first;
                k.at[at + j + half_dim] = second;
            }
        }
    } else if (is_v && norm_v != 0) {
        float scale = inversesqrt(mean + eps_v);
        for (uint i = id; i < dim; i += WORKGROUP) head[i] *= scale;
    }
    barrier();
    if (is_q) return;

    uint padded = (dim + 7) / 8 * 8;
    uint64_t page = table.at[entry_of(paging, state.at[sequence + r], p)];
    uint64_t first_element = uint64_t(((2 * layer_place(paging) + (is_v ? 1 : 0)) * kv_heads + kv_head) * PAGE + p % PAGE) * padded;
#ifdef KV_F16
    Words to = Words(page + first_element * 2);
    for (uint i = id; i < padded / 2; i += WORKGROUP) {
        // Values may not be normed: one past the range of f16 must not become an infinity.
        vec2 pair = 2 * i < dim ? clamp(vec2(head[2 * i], head[2 * i + 1]), -65504.0, 65504.0) : vec2(0);
        to.at[i] = packHalf2x16(pair);
    }
#elif defined(KV_BF16)
    Words to = Words(page + first_element * 2);
    for (uint i = id; i < padded / 2; i += WORKGROUP) {
        to.at[i] = 2 * i < dim ? pack_bf16(vec2(head[2 * i], head[2 * i + 1])) : 0;
    }
#else
    Floats to = Floats(page + first_element * 4);
    for (uint i = id; i < padded; i += WORKGROUP) to.at[i] = i < dim ? head[i] : 0.0;
#endif
}
