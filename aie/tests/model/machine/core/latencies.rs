//! How long instructions take.

/// The stages in which instructions write, read late and access memory, as the itineraries of the public LLVM backend
/// (AIE2Schedule.td) and its lock delays (AIEBaseInstrInfo.cpp) have them. All other reads are in stage 1.
#[derive(Clone, Copy, Debug)]
pub struct Latencies {
    pub scalar: u64,
    pub pointer: u64,
    pub multiply: u64,
    pub load: u64,
    pub widening_load: u64,
    /// Loads that shift up: the register of the shift is read that late, and the result written.
    pub shifting_read: u64,
    pub shifting_load: u64,
    /// Loads and stores access memory.
    pub memory: u64,
    /// Stores that round do.
    pub narrowing_store: u64,
    /// Moves, shuffles and integers of vectors.
    pub vector: u64,
    /// Shifts up and down between vectors and accumulators.
    pub widening: u64,
    pub narrowing: u64,
    /// `vunpack` reads its vector and writes the other.
    pub unpacking: u64,
    /// `vmac.f` reads the accumulator.
    pub product_read: u64,
    pub product: u64,
    /// `vadd.f` reads its operands.
    pub sum_read: u64,
    pub sum: u64,
    pub delay_slots: u64,
    /// A lock instruction stops the core in this stage ...
    pub lock_stall: u64,
    /// ... and until that one orders no access of memory.
    pub lock_resume: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies {
            scalar: 1,
            pointer: 1,
            multiply: 2,
            load: 7,
            widening_load: 7,
            shifting_read: 7,
            shifting_load: 9,
            memory: 5,
            narrowing_store: 7,
            vector: 2,
            widening: 3,
            narrowing: 4,
            unpacking: 7,
            product_read: 3,
            product: 6,
            sum_read: 3,
            sum: 6,
            delay_slots: 5,
            lock_stall: 2,
            lock_resume: 8,
        }
    }
}

impl Latencies {
    pub fn each(&mut self) -> [(&'static str, &mut u64); 20] {
        [
            ("scalar", &mut self.scalar),
            ("pointer", &mut self.pointer),
            ("multiply", &mut self.multiply),
            ("load", &mut self.load),
            ("widening load", &mut self.widening_load),
            ("shifting load's read", &mut self.shifting_read),
            ("shifting load", &mut self.shifting_load),
            ("memory", &mut self.memory),
            ("narrowing store", &mut self.narrowing_store),
            ("vector", &mut self.vector),
            ("widening", &mut self.widening),
            ("narrowing", &mut self.narrowing),
            ("unpacking", &mut self.unpacking),
            ("product's read", &mut self.product_read),
            ("product", &mut self.product),
            ("sum's read", &mut self.sum_read),
            ("sum", &mut self.sum),
            ("delay slots", &mut self.delay_slots),
            ("lock's stall", &mut self.lock_stall),
            ("lock's resume", &mut self.lock_resume),
        ]
    }
}
