// Package crashtest shows what a power failure may leave of the files that jorc writes. Record
// runs a function in a child process and notes each of its system calls that changes
// files below one directory. Replay then puts the directory, for every prefix of
// these calls, into each state that POSIX allows a crash to leave there:
// what was not synced is left out, reordered or torn. The product's own start has to cope with each.
//
// The record is made with ptrace, as strace makes it, so that it contains every write of the
// process, whichever function made it, and the product needs no seam. It needs no root. It
// works on Linux.
//
// The model is stricter than any file system: a name is on the disk once its
// directory was synced after it, content and mode of a file once the file was synced; until
// then each change is there or not, independently of the others. A rename is there as a
// whole or not at all.
package crashtest
