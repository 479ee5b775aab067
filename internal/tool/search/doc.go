// Package search holds the tools Glob and Grep.
//
// They look for files by name and by content in the folders that an agent may
// read. They promise the same form of answer whether ripgrep is there or not,
// bounded in lines and bytes, and that nothing a repository has configured is
// executed. They change nothing.
package search
