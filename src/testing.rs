//! The internals that this crate's own tests use, behind the feature `testing`. Not an interface for other crates: it
//! changes with the code.

pub mod inspect;

use crate::Result;
use crate::executor::Executor;
use crate::sequence::{Batch, Chooser, Finish, Generation, SequenceRequest};
use std::ops::ControlFlow;

/// Methods of an [`Executor`](crate::Executor) that wraps the one in field `inner`: all but `submit` and `logits`,
/// which tests change.
#[macro_export]
macro_rules! executor_methods {
    (of $inner:ident) => {
        fn device_info(&self) -> $crate::executor::DeviceInfo<'_> {
            self.$inner.device_info()
        }
        $crate::executor_methods!(but device_info of $inner);
    };
    (but device_info of $inner:ident) => {
        fn schedule(&self) -> &$crate::schedule::Schedule {
            self.$inner.schedule()
        }
        fn pages(&self) -> &$crate::executor::Pages {
            self.$inner.pages()
        }
        fn pages_mut(&mut self) -> &mut $crate::executor::Pages {
            self.$inner.pages_mut()
        }
        fn wait(&mut self) -> $crate::Result<()> {
            self.$inner.wait()
        }
        fn result(&self, row: usize) -> $crate::executor::RowResult<'_> {
            self.$inner.result(row)
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

/// AMD's GPUs by the kernel's own interface.
#[cfg(feature = "amdgpu")]
pub mod amdgpu {
    pub use crate::amdgpu::*;
}

/// The Vulkan driver.
pub mod vulkan {
    pub use super::inspect;
    pub use crate::vulkan::*;
}

/// Offloads with checks around them.
#[cfg(feature = "npu")]
pub mod offload {
    pub use crate::offload::*;
}

/// Programs on the NPU.
#[cfg(feature = "npu")]
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

/// Comparing executors, and checks of machines.
pub mod diagnose {
    pub use crate::diagnose::{compare, probe};
}

/// The form of an answer.
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

/// Runs a request alone: adds it to `batch`, and runs passes until the batch is empty. `on_token` is called with each
/// token and may end the reply by a break. Cached tokens of the prompt do not run again. Also returns the request's
/// chooser, for the next reply.
///
/// # Errors
/// Input: the prompt is empty, is longer than the context, or has a token outside of the vocabulary. Failed: logits are
/// not finite. Device: the device failed. A pass that is cancelled is no error: it ends the reply as
/// [`Finish::Interrupted`], with the tokens so far.
pub fn generate(
    executor: &mut dyn Executor,
    batch: &mut Batch,
    request: SequenceRequest,
    on_token: &mut dyn FnMut(u32) -> ControlFlow<Finish>,
) -> Result<(Generation, Chooser)> {
    let slot = batch.join(executor, request)?;
    let mut on_token = |_, token, _: &mut Chooser| on_token(token);
    loop {
        batch.step(executor, &mut on_token)?;
        while let Some(ended) = batch.take_ended() {
            if ended.slot == slot {
                return Ok((ended.reply?, ended.chooser));
            }
        }
    }
}
