//! A metered run for tests.

use abi::config::Huge;
use launch::guest::system::System;
use launch::meter::output::Output;
use launch::meter::row::{Cell, Label};

/// Returns a recorded run as the result of a system with this number of CPUs.
pub fn cell(system: System, cpus: u16) -> Cell {
    let recorded = include_str!("../../cli/src/meter/fixture.json");
    let text = recorded.replacen("\"cpus\":2", &format!("\"cpus\":{cpus}"), 1);
    let label = Label { program: "local", system, huge: Huge::Always, qemu: "7.2", kernel: "6.1" };
    Cell::new(&label, &Output::parse(&text).expect("it is well-formed"), Vec::new())
}
