// Package shell tests what shells and manual readers make of the command line's
// output: completion in bash, zsh and fish as a person has it, and the pages as
// man shows them.
package shell
