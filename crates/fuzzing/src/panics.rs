use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Calls of `attempt` that this thread is in.
    static ATTEMPTS: Cell<u32> = const { Cell::new(0) };
}

/// Calls `act`, and returns the message if it panics. Such a panic prints nothing.
///
/// # Errors
/// The panic's message, which is empty if it has none.
pub fn attempt<R>(act: impl FnOnce() -> R) -> Result<R, String> {
    hush_attempts();
    ATTEMPTS.set(ATTEMPTS.get() + 1);
    let result = panic::catch_unwind(AssertUnwindSafe(act));
    ATTEMPTS.set(ATTEMPTS.get() - 1);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
    })
}

/// Replaces the panic hook by one that prints nothing inside `attempt`.
fn hush_attempts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if ATTEMPTS.get() == 0 {
                usual(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_returns_the_value_or_the_message() {
        assert_eq!(attempt(|| 7), Ok(7));
        assert_eq!(attempt(|| -> u8 { panic!("too {}", "far") }), Err("too far".to_owned()));
        assert_eq!(attempt(|| attempt(|| panic!("inside"))), Ok(Err("inside".to_owned())));
    }
}
