//! The internals that this crate's own tests use, behind the feature `testing`. Not an interface for other crates: it
//! changes with the code.

/// Methods of an [`Executor`](crate::Executor) that wraps another or is a test's own: `of inner` forwards them to the
/// executor in field `inner`, `passes of inner` all but those of its guest, and `own` answers from fields `schedule`
/// and `pages`.
#[macro_export]
macro_rules! executor_methods {
    (of $inner:ident) => {
        $crate::executor_methods!(guest of $inner);
        $crate::executor_methods!(passes of $inner);
    };
    (guest of $inner:ident) => {
        fn device(&self) -> &str {
            self.$inner.device()
        }
        fn hardware(&self) -> &str {
            self.$inner.hardware()
        }
        fn guest(&self) -> Option<$crate::executor::guest::GuestReport> {
            self.$inner.guest()
        }
        fn placements(&self) -> &[$crate::executor::guest::PlacementTiming] {
            self.$inner.placements()
        }
    };
    (passes of $inner:ident) => {
        fn schedule(&self) -> &$crate::schedule::Schedule {
            self.$inner.schedule()
        }
        fn pages(&self) -> &$crate::executor::Pages {
            self.$inner.pages()
        }
        fn pages_mut(&mut self) -> &mut $crate::executor::Pages {
            self.$inner.pages_mut()
        }
        fn is_ahead(&self) -> bool {
            self.$inner.is_ahead()
        }
        fn project(&mut self, head: $crate::executor::HeadRows) -> $crate::Result<()> {
            self.$inner.project(head)
        }
        fn forward_watched(
            &mut self,
            rows: &[$crate::executor::Row],
            head: Option<$crate::executor::HeadRows>,
            watch: $crate::executor::Watch<'_>,
        ) -> $crate::Result<()> {
            self.$inner.forward_watched(rows, head, watch)
        }
        fn next(&self, row: usize) -> u32 {
            self.$inner.next(row)
        }
        fn is_finite(&self, row: usize) -> bool {
            self.$inner.is_finite(row)
        }
    };
    (own) => {
        fn schedule(&self) -> &$crate::schedule::Schedule {
            &self.schedule
        }
        fn device(&self) -> &str {
            "none"
        }
        fn pages(&self) -> &$crate::executor::Pages {
            &self.pages
        }
        fn pages_mut(&mut self) -> &mut $crate::executor::Pages {
            &mut self.pages
        }
    };
}

/// Lowering of steps to dispatches.
pub mod lower {
    pub use crate::lower::*;
}

/// The executor on a device.
pub mod replay {
    pub use crate::replay::*;
}

/// The Vulkan driver.
pub mod vulkan {
    pub use crate::vulkan::*;
}

/// Programs on the NPU.
pub mod npu {
    pub use crate::npu::*;
}

/// The CPU executor.
pub mod cpu {
    pub use crate::cpu::Cpu;
}

/// The reference executor.
pub mod reference {
    pub use crate::reference::*;
}

/// The kernel drivers' interfaces.
pub mod sys {
    pub use crate::sys::*;
}

/// Comparing executors.
pub mod diagnose {
    pub use crate::diagnose::compare;
}

/// What an answer may be.
#[cfg(feature = "serve")]
pub mod grammar {
    pub use crate::grammar::{Constraint, Grammar, Grammars};
}

/// Models in the cache of the Hugging Face hub.
pub mod hub {
    #[cfg(feature = "pull")]
    pub use crate::hub::pull;
    pub use crate::hub::{Cache, name};
}

/// This machine.
pub mod machine {
    pub use crate::machine::{files, heaps, nodes};
}

/// Where each byte goes.
pub mod plan {
    pub use crate::plan::{Needs, Plan, Purpose};
}
