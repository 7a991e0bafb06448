//! LDS of a workgroup: its bytes, which were never written, and who touched them since the last barrier.

use crate::fault::What;

/// An access in flight, for what comes behind a barrier.
#[derive(Debug, Clone)]
pub struct Touch {
    /// Barriers that the wave had passed.
    pub epoch: u32,
    /// Lanes that take part, by half of the wave.
    pub lanes: [u32; 2],
    /// First byte of each access.
    pub bytes: Vec<u32>,
    /// Size of each.
    pub size: u32,
}

/// Who touched a byte last: barriers passed above bit 8, then the wave; 0: nobody.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    /// The last writer; bit 7 says that it was an atomic.
    write: u32,
    /// The last reader; [`MANY`] for more than one.
    read: u32,
}

const MANY: u32 = 0x7f;
const ATOMIC: u32 = 0x80;

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Use {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reads and writes at once.
    Atomic,
}

/// See the module.
#[derive(Debug)]
pub struct Lds {
    words: Vec<u32>,
    poison: Vec<u8>,
    marks: Vec<Mark>,
}

impl Lds {
    /// So many bytes with nothing written.
    pub fn new(bytes: usize) -> Self {
        let words = bytes.div_ceil(4);
        Self { words: vec![0xdead_beef; words], poison: vec![15; words], marks: vec![Mark::default(); 4 * words] }
    }

    /// Zeros all of it.
    pub fn zero(&mut self) {
        self.words.fill(0);
        self.poison.fill(0);
    }

    /// Checks an access and remembers it.
    #[inline]
    pub fn touch(&mut self, byte: u32, size: u32, how: Use, wave: u32, epoch: u32) -> Result<(), What> {
        let marks = self.marks.get_mut(byte as usize..(byte + size) as usize);
        let Some(marks) = marks else {
            let buffer = format!("LDS has {} bytes", 4 * self.words.len());
            return Err(What::OutOfBounds { address: byte as u64, bytes: size, buffer });
        };
        let now = (epoch + 1) << 8 | wave;
        for (i, mark) in marks.iter_mut().enumerate() {
            let race = |other: u32| Err(What::Race { byte: byte + i as u32, waves: [wave, other & MANY] });
            let written_now = mark.write >> 8 == epoch + 1 && (mark.write ^ now) & MANY != 0;
            match how {
                Use::Read => {
                    if written_now {
                        return race(mark.write);
                    }
                    mark.read = if mark.read >> 8 == epoch + 1 && mark.read != now { now | MANY } else { now };
                }
                Use::Write | Use::Atomic => {
                    let atomic = ATOMIC * (how == Use::Atomic) as u32;
                    if written_now && atomic & mark.write == 0 {
                        return race(mark.write);
                    }
                    if mark.read >> 8 == epoch + 1 && mark.read != now {
                        return race(mark.read);
                    }
                    mark.write = now | atomic;
                }
            }
        }
        Ok(())
    }

    /// A dword and its poisoned bytes.
    #[inline]
    pub fn word(&self, byte: u32) -> (u32, u8) {
        (self.words[byte as usize / 4], self.poison[byte as usize / 4])
    }

    /// Writes bytes of a dword.
    #[inline]
    pub fn write(&mut self, byte: u32, value: u32, bytes: u8, poison: u8) {
        let i = byte as usize / 4;
        let mask = (0..4).filter(|i| bytes >> i & 1 != 0).fold(0, |all, i| all | 0xff << (8 * i));
        self.words[i] = self.words[i] & !mask | value & mask;
        self.poison[i] = self.poison[i] & !bytes | poison & bytes;
    }
}
