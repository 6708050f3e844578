//! Statics with one value for each core that a machine may have.
//!
//! A machine mostly has far fewer. Each of these statics is listed in a section of the image, from which boot
//! learns the pages that only values of missing cores lie in. It frees their frames and unmaps them from the
//! image, so that an access to such a value is a fault of the kernel.

use core::ops::Range;

use percore::AllCores;

/// A static of [`all_cores`].
pub trait Listed: Sync {
    /// Returns the addresses of the values of all cores but the first `cores`.
    fn beyond(&self, cores: usize) -> Range<usize>;
}

impl<T: Sync> Listed for AllCores<T> {
    fn beyond(&self, cores: usize) -> Range<usize> {
        Self::beyond(self, cores)
    }
}

/// Declares a static [`AllCores`] that begins with the same value for every core.
macro_rules! all_cores {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;) => {
        $(#[$meta])*
        static $name: percore::AllCores<$type> = percore::AllCores::new(
            [const { sync::CachePadded::new($value) }; percore::MAX_CORES]
        );
        const _: () = {
            // SAFETY: the section has items of this type only.
            #[allow(unsafe_code)]
            #[used]
            #[unsafe(link_section = ".all_cores")]
            static LISTED: &dyn $crate::arch::per_core::Listed = &$name;
        };
    };
}
pub(crate) use all_cores;

unsafe extern "C" {
    static __all_cores_start: u8;
    static __all_cores_end: u8;
}

/// Returns all of these statics.
pub fn all() -> &'static [&'static dyn Listed] {
    let start: *const &dyn Listed = (&raw const __all_cores_start).cast();
    let end: *const &dyn Listed = (&raw const __all_cores_end).cast();
    // SAFETY: the linker puts the items of `all_cores` between the two, without padding.
    unsafe { core::slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}
