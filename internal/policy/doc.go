// Package policy decides whether a tool call may run: allow, ask or deny.
//
// Deny rules come first, then ask, then allow. A call that no rule and no mode decides
// needs approval; where nobody can answer, it is denied and the model sees the reason. A
// mode overrides neither a deny rule nor an ask rule.
//
// Rules for a shell line speak of plain words. The line is parsed once with a bash parser:
// a deny or ask rule holds for every simple command in it, also after sudo or in sh -c, and
// what the line does not show may be what such a rule names, so it asks. Where a sandbox
// bounds the command ([Bounds]) nothing else is asked. Without one, a command runs unasked
// if a rule allows it or if it is one of a few that only read, with plain words.
//
// Deciding starts nothing and lists no folder. It follows the links of the paths that a
// call names, and reads the configuration and the index of the git repository that git would use:
// the same call gets the same decision while those files stay the same.
//
// This is not a security boundary. An approved program is not restricted, and a path
// is checked before it is opened: tools that open files call [Gate.MayOpen] on the
// open file, and follow no links out of their folders.
package policy
