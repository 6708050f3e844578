//! Copying to and from user memory: the only instructions that may fault in the kernel.
