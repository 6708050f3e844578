//! Operations per second.
fn main() {}
