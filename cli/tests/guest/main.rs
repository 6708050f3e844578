//! Tests that boot guests. Each runs the command `radixvm` and checks the output that a user or a script
//! would see. `cargo xtask guest` runs one of them at a time for each two cores.

mod adaptive;
mod applications;
mod baselines;
mod binaries;
mod bochs;
mod calls;
mod comparison;
mod compress;
mod counters;
mod crashes;
mod designs;
mod figures;
mod files;
mod forks;
mod harness;
mod hostile;
mod huge;
mod installing;
mod last_words;
mod launching;
mod lifecycle;
mod machines;
mod matrix;
mod meter;
mod meter_programs;
mod microbenchmarks;
mod newer_qemu;
mod owners;
mod programs;
mod scale;
mod statuses;
mod stock_kernels;
mod storms;
mod streams;
mod stretches;
