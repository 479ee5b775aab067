package modelwire

import (
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/agent"
)

// spot is the part of the request that a refusal names, such as messages.2.content.0.image,
// input[3] or tools.1.custom.input_schema. Messages are counted as the provider has them.
func (e *Refusal) spot() agent.Spot {
	for _, text := range []string{e.Param, e.Message} {
		for _, path := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n'\"`,;()", r) }) {
			if at := spotOf(path); at != (agent.Spot{}) {
				return at
			}
		}
	}
	text := strings.ToLower(e.Message)
	return agent.Spot{File: slices.ContainsFunc([]string{"image", "pdf", "document"}, func(kind string) bool {
		return strings.Contains(text, kind)
	})}
}

// spotOf reads one path.
func spotOf(path string) (at agent.Spot) {
	words := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]:", r) })
	number := func(i int) int {
		if i >= len(words) {
			return 0
		}
		n, err := strconv.Atoi(words[i])
		if err != nil || n < 0 || n > 1<<30 {
			return 0
		}
		return n + 1
	}
	list := slices.IndexFunc(words, func(w string) bool { return w == "messages" || w == "input" || w == "tools" })
	switch {
	case list < 0 || number(list+1) == 0:
		return at
	case words[list] == "tools":
		return agent.Spot{Tool: number(list + 1)}
	}
	at.Message = number(list + 1)
	for i := list + 2; i < len(words); i++ {
		switch {
		case words[i] != "content" && words[i] != "output":
		case at.Block == 0:
			at.Block = number(i + 1)
		case at.Inner == 0:
			at.Inner = number(i + 1)
		}
	}
	return at
}
