//! Linux numbers and structures.
#![no_std]
