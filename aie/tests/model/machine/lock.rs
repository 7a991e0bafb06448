//! Locks: counters that are waited for.

use super::Fault;

pub struct Locks {
    values: Vec<i32>,
    /// Whether one was released since this was last taken: who waits looks again.
    pub released: bool,
}

/// The largest value that a lock's register holds.
const MOST: i32 = 63;

impl Locks {
    pub fn new(count: usize) -> Locks {
        Locks { values: vec![0; count], released: false }
    }

    pub fn set(&mut self, lock: u32, value: u32) -> Result<(), Fault> {
        *self.lock(lock)? = (value & 0x3F) as i32;
        Ok(())
    }

    /// Takes |`value`| where the lock has them: `value` is negative. Whether it did.
    pub fn acquire(&mut self, lock: u32, value: i32) -> Result<bool, Fault> {
        if value >= 0 {
            return Err(format!("acquiring lock {lock} at exactly {value} is not modelled"));
        }
        let held = self.lock(lock)?;
        let granted = *held >= -value;
        *held += if granted { value } else { 0 };
        Ok(granted)
    }

    pub fn release(&mut self, lock: u32, value: i32) -> Result<(), Fault> {
        self.released = true;
        let held = self.lock(lock)?;
        *held += value;
        if !(0..=MOST).contains(held) {
            return Err(format!("lock {lock} is released to {held}"));
        }
        Ok(())
    }

    fn lock(&mut self, lock: u32) -> Result<&mut i32, Fault> {
        let count = self.values.len();
        self.values.get_mut(lock as usize).ok_or_else(|| format!("there is no lock {lock}: {count} of them"))
    }
}
