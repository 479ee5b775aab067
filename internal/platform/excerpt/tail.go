package excerpt

import "unicode/utf8"

// DefaultLimit is the length of one output that a model sees, in code points.
const DefaultLimit = 32_000

// Tail returns text unchanged if it has at most limit code points. Otherwise it
// returns exactly limit of them: a header that names path, then the end of the
// text. The boolean reports a cut.
func Tail(text string, limit int, path string) (string, bool) {
	if len(text) <= limit || utf8.RuneCountInString(text) <= limit {
		return text, false
	}
	return End(text, limit, path), true
}

// End returns the header and as much of the end of text as fits into limit code
// points. It is for text that is known to be only the end of something.
func End(text string, limit int, path string) string {
	header := "[Truncated. Full output: " + path + "]\n\n"
	room := limit - utf8.RuneCountInString(header)
	if room < 0 {
		return first(header, max(limit, 0))
	}
	return header + last(text, room)
}

// first returns the first n code points.
func first(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// last returns the last n code points.
func last(s string, n int) string {
	i := len(s)
	for ; n > 0 && i > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:i])
		i -= size
	}
	return s[i:]
}
