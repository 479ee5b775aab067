// Package frontmatter reads Markdown files that begin with a block of YAML
// between two lines of dashes, such as definitions of agents and SKILL.md.
//
// It promises that a file which strict YAML refuses is read all the same by a
// tolerant reader, with a [Warning] that names the line and the reason; that
// nothing is expanded, so anchors and aliases stay what they look like; and
// that a file beyond the bounds is refused before work is spent on it. It does
// no I/O, does not know what keys mean, and escapes nothing: whoever shows a
// value does.
package frontmatter
