//! weir: the front door of FastCGI applications.
//!
//! Chooses a role, runs it, and turns an error into an exit code. One program has four roles: a person starts
//! the manager, and the manager starts the gateway, the keeper of private keys and the process that gets certificates (see
//! ARCHITECTURE.md).
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

use weir_observe::error_log;

/// A request allocates and frees some dozens of small objects on one thread: with this allocator the gateway needs about a tenth less CPU time than with the C library's. It is built without huge pages
/// (`no_thp`), which would add megabytes to a process that needs little; workers still use huge pages.
#[global_allocator]
static ALLOCATOR: weir_sys::memory::Allocator = weir_sys::memory::Allocator;

fn main() -> ExitCode {
    weir_sys::signal::ignore_file_size_limit();
    if weir_manager::jail::is_gateway() {
        return serve_as_gateway();
    }
    if weir_keeper::is_keeper() {
        return keep_keys();
    }
    if weir_acme::is_acme() {
        return get_certificates();
    }
    cli::main()
}

/// Runs the keeper of private keys. Errors are reported to the manager, which logs them.
fn keep_keys() -> ExitCode {
    weir_sys::signal::leave_to_the_manager();
    match weir_keeper::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(weir_manager::EX_SOFTWARE),
    }
}

/// Runs the process that talks to authorities. Errors are reported to the manager, which logs them.
fn get_certificates() -> ExitCode {
    weir_sys::signal::leave_to_the_manager();
    match weir_acme::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(weir_manager::EX_SOFTWARE),
    }
}

/// Runs the gateway. Errors are reported to the manager, which logs them.
fn serve_as_gateway() -> ExitCode {
    weir_sys::signal::leave_to_the_manager();
    error_log::init("gateway");
    let served = weir_manager::jail::enter().and_then(|heritage| {
        error_log::log_panics();
        let manager = heritage
            .control
            .try_clone()
            .map_err(|error| error.to_string())?;
        weir_gateway::run(heritage, weir_admin::server::serve, weir_egress::start)
            .map_err(|message| weir_manager::jail::complain(&manager, message))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(weir_manager::EX_SOFTWARE),
    }
}
