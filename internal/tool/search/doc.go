// Package search holds the tools Glob and Grep.
//
// They find files by name and by content in the folders that an agent may read.
// An answer has the same form with and without ripgrep, and is bounded in lines and
// bytes. The configuration of a repository cannot make them execute anything. They
// change nothing.
package search
