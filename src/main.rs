//! The executable: all of it is [`kiln::command_line`].

use std::process::ExitCode;

fn main() -> ExitCode {
    kiln::command_line()
}
