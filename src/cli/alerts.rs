//! `weir alerts`: what watches a weir that runs. The files are those of packaging/, so that a machine that has only the program has them
//! too. docs/alerts.md explains them.

use std::process::ExitCode;

use clap::Args;
use weir_tools::command::print;

/// Flags of `weir alerts`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct AlertsArgs {
    /// Print alert rules for Prometheus
    #[arg(long)]
    pub prometheus: bool,

    /// Print a dashboard for Grafana
    #[arg(long)]
    pub grafana: bool,
}

/// Runs `weir alerts`.
pub fn main(args: &AlertsArgs) -> ExitCode {
    print(if args.grafana { DASHBOARD } else { RULES })
}

const RULES: &str = include_str!("../../packaging/prometheus/weir.rules.yml");

const DASHBOARD: &str = include_str!("../../packaging/grafana/weir.json");
