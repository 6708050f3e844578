//! Which room handles which trap.

use vm::{Access, VirtAddr};

use crate::above::Above;
use crate::arch::{Handlers, TrapFrame};
use crate::{fs, process, sched, syscall};

impl Handlers for Above {
    #[inline(always)]
    fn syscall(frame: &mut TrapFrame) {
        syscall::dispatch(frame);
    }
    fn traced_syscall(frame: &mut TrapFrame) {
        syscall::trace::dispatch(frame);
    }
    #[inline(always)]
    fn page_fault(frame: &mut TrapFrame, address: VirtAddr, access: Access) {
        process::fault::from_user(frame, address, access);
    }
    #[inline(always)]
    fn exception(frame: &mut TrapFrame, vector: u8) {
        process::fault::exception(frame, vector);
    }
    #[inline(always)]
    fn copy_fault(address: VirtAddr, access: Access) -> bool {
        process::fault::from_kernel(address, access)
    }
    #[inline(always)]
    fn first_return() {
        sched::finish_switch();
    }
    #[inline(always)]
    fn return_to_user(frame: &mut TrapFrame) {
        sched::on_return_to_user(frame);
    }
    #[inline(always)]
    fn timer() {
        sched::on_timer();
    }
    #[inline(always)]
    fn reschedule() {
        sched::on_reschedule();
    }
    #[inline(always)]
    fn control_input() {
        fs::on_input();
    }
    #[inline(always)]
    fn network() {
        sched::on_network();
    }
}
