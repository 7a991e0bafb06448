// RoPE's rotation, which every kernel that rotates makes in the same way, to the bit.

// The sine and cosine of the angle at a position.
vec2 rotation(uint p, float frequency) {
    float angle = float(p) * frequency;
    // Drivers' sin and cos lose accuracy as the angle grows: take whole turns off first. 2 pi is in three parts, the first
    // two of so few bits that their products are exact, with or without a fused multiply-add.
    float turns = round(angle * 0.15915494);
    angle = ((angle - turns * 6.28125) - turns * 0.001934051513671875) - turns * 1.2556659e-6;
    return vec2(sin(angle), cos(angle));
}
