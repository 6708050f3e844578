//! demo
use clap::Args;
/// Options.
#[derive(Args)]
pub struct Arguments {}
/// Runs.
pub fn run(_: &Arguments) -> anyhow::Result<u8> {
    Ok(0)
}
