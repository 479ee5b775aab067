// Package policy decides whether a tool call may run: allow, ask or deny.
//
// Deny rules come first, then ask, then allow. A call that no rule and no mode
// decides needs approval; where nobody can answer, it is denied and the model sees
// the reason. A mode overrides neither a deny rule nor an ask rule. A call that the
// package does not understand is not approved: it parses a shell line with one bash
// parser and checks every simple command in it, and only literal words count. The
// same call gets the same decision while the files that it names stay the same.
//
// The tables of programs are programs.txt, git.txt and gitkeys.txt. Reading with git
// needs no approval if the repository's configuration names no program; the pager
// runs only on a terminal, which commands of agents do not have.
//
// This is not a security boundary. An approved program is not restricted, and a path
// is checked before it is opened: tools that open files call [Gate.MayOpen] on the
// open file, and follow no links out of their folders.
package policy
