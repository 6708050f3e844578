//! Programs.
fn main() {}
