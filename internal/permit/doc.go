// Package permit decides whether a call of a tool may run: allow, ask or deny.
//
// The order is deny, ask, allow; what no rule and no mode speaks of is asked;
// where nobody can answer, a question is a denial that the model is told of. It
// promises that what it does not understand is not approved: a shell line is
// parsed, every simple command in it is judged, and only literal words count.
//
// It is no boundary. A program that was approved does what it likes, and a path
// is judged before it is opened: the tools that open files must refuse links
// themselves.
package permit
