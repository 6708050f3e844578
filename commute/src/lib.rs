//! Makes tests of pairs of calls that commute: a state and two calls whose two orders give the same results
//! and the same state. A kernel can then run the two calls on two CPUs without a line that one writes and the
//! other touches (the scalable commutativity rule). `radixvm commute` runs the tests under the meter, and
//! `docs/design/commute.md` explains the method.
//!
//! ```text
//! call ◀── model ◀── case ◀── enumerate
//!  (one call  (a naive  (a test)  (all tests)
//!   as text)   POSIX)
//! ```

#![forbid(unsafe_code)]

pub mod call;
pub mod case;
pub mod enumerate;
pub mod model;
