//! bench
use clap::Subcommand;
/// Options.
#[derive(Subcommand)]
pub enum Bench {
    /// x
    Micro,
}
/// Runs.
pub fn run(_: Bench) -> anyhow::Result<u8> {
    Ok(0)
}
