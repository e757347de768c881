"""The public calls of a kernel, a file for each kind; `memos.kernel.MemOS` has them all."""
