//! What atomics compute, in LDS and in memory.

/// The new value from the old one, the data and the compared or second value. Values of 32 bits are below 2³².
pub type Atomic = fn(old: u64, data: u64, other: u64) -> u64;

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}
fn d(x: u64) -> f64 {
    f64::from_bits(x)
}

/// The operation of a mnemonic's middle, such as `add_u32`; of `cmpswap` the data is stored where `other` compares.
pub fn atomic(name: &str) -> Option<Atomic> {
    Some(match name {
        "add_u32" => |old, data, _| old.wrapping_add(data) as u32 as u64,
        "sub_u32" => |old, data, _| old.wrapping_sub(data) as u32 as u64,
        "rsub_u32" => |old, data, _| data.wrapping_sub(old) as u32 as u64,
        "csub_u32" => |old, data, _| old.saturating_sub(data),
        "add_u64" => |old, data, _| old.wrapping_add(data),
        "sub_u64" => |old, data, _| old.wrapping_sub(data),
        "rsub_u64" => |old, data, _| data.wrapping_sub(old),
        "inc_u32" | "inc_u64" => |old, data, _| if old >= data { 0 } else { old + 1 },
        "dec_u32" | "dec_u64" => |old, data, _| if old == 0 || old > data { data } else { old - 1 },
        "min_i32" => |old, data, _| (old as i32).min(data as i32) as u32 as u64,
        "max_i32" => |old, data, _| (old as i32).max(data as i32) as u32 as u64,
        "min_i64" => |old, data, _| (old as i64).min(data as i64) as u64,
        "max_i64" => |old, data, _| (old as i64).max(data as i64) as u64,
        "min_u32" | "min_u64" => |old, data, _| old.min(data),
        "max_u32" | "max_u64" => |old, data, _| old.max(data),
        "and_b32" | "and_b64" => |old, data, _| old & data,
        "or_b32" | "or_b64" => |old, data, _| old | data,
        "xor_b32" | "xor_b64" => |old, data, _| old ^ data,
        "mskor_b32" | "mskor_b64" => |old, data, other| old & !data | other,
        "swap_b32" | "swap_b64" | "storexchg_b32" | "storexchg_b64" => |_, data, _| data,
        "cmpswap_b32" | "cmpswap_b64" | "cmpstore_b32" | "cmpstore_b64" => {
            |old, data, other| if old == other { data } else { old }
        }
        "cmpswap_f32" | "cmpstore_f32" => |old, data, other| if f(old) == f(other) { data } else { old },
        "cmpstore_f64" => |old, data, other| if d(old) == d(other) { data } else { old },
        "min_f32" => |old, data, _| if f(data) < f(old) { data } else { old },
        "max_f32" => |old, data, _| if f(data) > f(old) { data } else { old },
        "min_f64" => |old, data, _| if d(data) < d(old) { data } else { old },
        "max_f64" => |old, data, _| if d(data) > d(old) { data } else { old },
        "add_f32" => |old, data, _| (f(old) + f(data)).to_bits() as u64,
        "wrap_b32" => |old, data, other| if old >= data { old - data } else { old.wrapping_add(other) as u32 as u64 },
        _ => return None,
    })
}
