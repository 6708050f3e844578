//! A call of the machine that gives its core up while slots are locked. The core is played for ever then, so
//! this has a process of its own.

use std::cell::RefCell;
use std::thread;

use fuzzing::attempt;
use percore::CoreId;
use percore::threads::{self, ThreadCore};
use vm::{Access, Mapping, PageNum, Placement, Prot};
use vm_testkit::{Call, Design, Setup, World};

thread_local! {
    static PLAYED: RefCell<Option<ThreadCore>> = const { RefCell::new(None) };
}

/// The last of `cores` cores.
fn gives_its_core_up(design: Design, cores: usize) {
    let page = PageNum::new(1000);
    let world = World::new(Setup { cores, ..Setup::new() }, design);
    world.machine.on(0, |pin| {
        world.space.map(pin, Placement::Fixed(page), 1, Mapping::anonymous(Prot::READ)).unwrap();
    });
    PLAYED.set(Some(threads::enter(CoreId::new(cores - 1))));
    world.machine.interpose(Call::Alloc, |_| drop(PLAYED.take()));
    let pin = percore::pin();
    let failure = attempt(|| world.fault(&pin, page, Access::Read));
    assert_eq!(failure, Err("a pinned thread gave up its core".to_owned()));
}

#[test]
fn a_call_of_the_machine_does_not_give_its_core_up() {
    for (design, cores) in Design::ALL.into_iter().zip((1..=Design::ALL.len()).rev()) {
        thread::spawn(move || gives_its_core_up(design, cores)).join().unwrap();
    }
}
