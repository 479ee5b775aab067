// Package excerpt makes text of unknown origin harmless before a model or a
// terminal sees it, and is the only place that decides how.
//
// [Plain] and [Visible] are for output that is read, [Exact] and [Call] for what
// somebody decides about: they lose nothing, so two texts that differ are never
// shown alike. [JSON] does the same for text that must stay JSON, [Prose] is for the
// answer of a model. It promises that cuts fall between code points, that no control
// byte other than tab and newline survives, and that what cannot be seen is shown
// marked, as <U+202E>. It does no I/O and keeps no state; it is no guard against
// text that lies in plain words.
package excerpt
