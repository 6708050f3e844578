//! The kernel's implementation of `percore::Host`.

use percore::{CoreId, Host};

struct Kernel;

// SAFETY: kernel code is never preempted: a task changes core only where it sleeps or returns to user mode,
// and does neither while it is pinned. Interrupt handlers that hit kernel code touch no pinned data but their
// own.
unsafe impl Host for Kernel {
    #[inline(always)]
    fn pin() -> CoreId {
        super::percpu::core()
    }
    #[inline(always)]
    fn unpin() {}
    fn relax() {
        super::wait::turn();
    }
}

percore::set_host!(Kernel);
