//! Instruction vectors of tinygrad's tests (MIT): `checked` is what its tests assert on RDNA 3 cards.

use crate::common::inflate;
use gfx11::cache::{Caches, Ctx};
use gfx11::float::Mode;
use gfx11::lds::Lds;
use gfx11::memory::Memory;
use gfx11::program::Program;
use gfx11::wave::{State, VCC, Wave};
use serde_json::Value;

const KERNARG: u64 = 0x1_0000;
const BUFFER: u64 = 0x10_0000;

/// State as the vectors have it.
struct After {
    v: Vec<Vec<u32>>,
    s: Vec<u32>,
    vcc: u32,
    scc: u32,
    exec: u32,
}

fn run(code: &[u32], lanes: usize) -> Result<After, String> {
    let program = Program::new(code).map_err(|f| f.to_string())?;
    let mut memory = Memory::default();
    memory.add_words("kernarg", KERNARG, &[BUFFER as u32, (BUFFER >> 32) as u32]);
    memory.add_words("buffer", BUFFER, &vec![0; ((64 * lanes).max(2048) + 76) / 4]);
    let mut lds = Lds::new(64 << 10);
    lds.zero();
    let mut caches = Caches::new(1);
    let mode = Mode { ieee: true, ..Mode::RADV };
    let mut waves: Vec<Wave> = (0..lanes.div_ceil(32))
        .map(|n| {
            let exec = if lanes < 32 { (1u64 << lanes) - 1 } else { u32::MAX as u64 };
            let mut w = Wave::new(n as u32, n % 2, false, exec, mode, 1);
            (0..256).for_each(|r| w.set_v(0, r, [0; 32]));
            w.set_v(0, 255, std::array::from_fn(|i| (32 * n + i) as u32));
            (0..108).chain([125]).for_each(|r| w.set_s(r, 0));
            w.set_s(80, KERNARG as u32);
            w.set_s(81, (KERNARG >> 32) as u32);
            w.set_s(127, 0);
            (w.scc, w.scc_poison) = (false, false);
            w
        })
        .collect();
    while waves.iter().any(|w| w.state != State::Ended) {
        for w in &mut waves {
            while w.state == State::Running {
                let mut ctx =
                    Ctx { lds: &mut lds, caches: &mut caches, pair: 0, memory: &memory, user: None, defer: 0 };
                program.step(w, &mut ctx).map_err(|e| e.to_string())?;
            }
        }
        for w in waves.iter_mut().filter(|w| w.state == State::Barrier) {
            (w.state, w.epoch) = (State::Running, w.epoch + 1);
        }
    }
    let v = (0..16).map(|r| waves.iter().flat_map(|w| w.v[r]).take(lanes).collect()).collect();
    let w = &waves[0];
    Ok(After { v, s: w.s[..16].to_vec(), vcc: w.s[VCC], scc: w.scc as u32, exec: w.exec(0) })
}

fn hex(v: &Value) -> u32 {
    u32::from_str_radix(v.as_str().unwrap(), 16).unwrap()
}

fn expected(vector: &Value, r: usize, lane: usize) -> u32 {
    match &vector["v"][r.to_string()] {
        Value::Null => 0,
        Value::Array(all) => hex(&all[lane]),
        one => hex(one),
    }
}

/// Equal, or both a NaN of their size; where the test had a tolerance, near.
fn same(got: u32, want: u32, inexact: bool) -> bool {
    let (a, b) = (f32::from_bits(got), f32::from_bits(want));
    got == want || a.is_nan() && b.is_nan() || inexact && (a - b).abs() <= 1e-5f32.max(b.abs() * 1e-5)
}

/// Of all differences the first: of what the vector checks, or of all its state.
fn difference(vector: &Value, whole: bool) -> Option<String> {
    let bytes = vector["code"].as_str().unwrap();
    let word = |i: usize| u32::from_str_radix(&bytes[8 * i..8 * i + 8], 16).unwrap().swap_bytes();
    let code: Vec<u32> = (0..bytes.len() / 8).map(word).collect();
    let lanes = vector["lanes"].as_u64().unwrap() as usize;
    let after = match run(&code, lanes) {
        Ok(after) => after,
        Err(fault) => return Some(fault),
    };
    let inexact = !vector["inexact"].is_null();
    let checked = vector["checked"].as_str().unwrap();
    let checked: Vec<&str> = checked.split(' ').collect();
    let lane_list = |r: usize| -> Option<Vec<usize>> {
        let item = checked.iter().find(|c| **c == format!("v{r}") || c.starts_with(&format!("v{r}[")))?;
        Some(match item.split_once('[') {
            Some((_, list)) => list.trim_end_matches(']').split(',').map(|n| n.parse().unwrap()).collect(),
            None => (0..lanes).collect(),
        })
    };
    for r in 0..16 {
        for lane in if whole { Some((0..lanes).collect()) } else { lane_list(r) }.unwrap_or_default() {
            let (got, want) = (after.v[r][lane], expected(vector, r, lane));
            if !same(got, want, inexact) {
                return Some(format!("v{r}[{lane}] is {got:x}, not {want:x}"));
            }
        }
    }
    for (r, got) in after.s.iter().enumerate() {
        let want = match &vector["s"][r.to_string()] {
            Value::Null => 0,
            one => hex(one),
        };
        if (whole || checked.contains(&format!("s{r}").as_str())) && *got != want {
            return Some(format!("s{r} is {got:x}, not {want:x}"));
        }
    }
    let rest = [("vcc", after.vcc, hex(&vector["vcc"])), ("exec", after.exec, hex(&vector["exec"]))];
    let scc = ("scc", after.scc, vector["scc"].as_u64().unwrap() as u32);
    let rest = rest.into_iter().chain([scc]).find(|(name, got, want)| (whole || checked.contains(name)) && got != want);
    rest.map(|(name, got, want)| format!("{name} is {got:x}, not {want:x}"))
}

#[test]
fn all_vectors_give_their_state() {
    let file: Value = serde_json::from_str(&inflate(include_bytes!("../data/vectors.json.z"))).unwrap();
    let all = file["vectors"].as_array().unwrap();
    assert_eq!(all.len(), 737);
    let dpp = file["dpp_vectors"].as_array().unwrap();
    let fails = |whole: bool| -> Vec<String> {
        let one = |v: &Value| Some(format!("{} ({}): {}", v["test"], v["ops"], difference(v, whole)?));
        all.iter().chain(dpp).filter_map(one).collect()
    };
    let checked = fails(false);
    assert!(checked.is_empty(), "{} of {}\n{}", checked.len(), all.len() + dpp.len(), checked.join("\n"));
    let whole = fails(true);
    assert!(whole.is_empty(), "whole state: {} of {}\n{}", whole.len(), all.len() + dpp.len(), whole.join("\n"));
}
