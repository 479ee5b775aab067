// Package permission decides whether a call of a tool may run: allow, ask or deny.
//
// The order is deny, ask, allow; what no rule and no mode speaks of is asked;
// where nobody can answer, a question is a denial that the model is told of. A
// mode lifts neither a denial nor a question that a rule wants. It promises that
// what it does not understand is not approved: a shell line is parsed by one
// parser for bash, every simple command in it is judged, and only words that are
// known beforehand count. The same call gets the same answer, as long as the files
// that it speaks of stay the same.
//
// What is known of programs stands in programs.txt, git.txt and gitkeys.txt.
// git reads without a question where the repository sets nothing that names a
// program; its pager runs only for a terminal, which commands of agents have not.
//
// It is no boundary. A program that was approved does what it likes, and a path
// is judged before it is opened: tools that open files ask [Gate.MayOpen] about
// what they have opened, and follow no links out of their folders.
package permission
