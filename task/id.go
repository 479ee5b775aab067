package task

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// ID names a task: the letter of its kind and eight characters of [0-9a-z]
// from a cryptographic source, so that the path of a future task cannot be
// guessed and occupied.
type ID string

// RunID names one execution of a task.
type RunID string

// idBody is the number of random characters in an ID.
const idBody = 8

const base36 = "0123456789abcdefghijklmnopqrstuvwxyz"

// ErrBadID is returned for text that cannot be a task ID.
var ErrBadID = errors.New("not a task ID")

// NewID makes an ID for a task of the kind.
func NewID(k Kind) ID { return ID(string(k.Letter()) + randomBody()) }

// NewSessionID makes an ID for a main session.
func NewSessionID() ID { return ID(string(MainSessionLetter) + randomBody()) }

// NewRunID makes an ID for one run. The IDs of the runs of a task sort in the order in
// which the runs began, as the readers of stream-json expect.
func NewRunID() RunID {
	at := strconv.FormatInt(time.Now().UnixMilli(), 36)
	return RunID("run_" + strings.Repeat("0", max(0, idBody-len(at))) + at + randomBody())
}

// randomBody draws without bias: bytes of 252 and above are thrown away,
// because 252 is the largest multiple of 36 in a byte.
func randomBody() string {
	var out [idBody]byte
	var buf [16]byte
	for n := 0; n < idBody; {
		_, _ = rand.Read(buf[:]) // crypto/rand.Read never fails
		for _, b := range buf {
			if b < 252 && n < idBody {
				out[n] = base36[b%36]
				n++
			}
		}
	}
	return string(out[:])
}

// ParseID checks that s has the form of a new ID.
func ParseID(s string) (ID, error) {
	if len(s) != 1+idBody {
		return "", fmt.Errorf("%w: %.40q", ErrBadID, s)
	}
	if _, ok := kindOfLetter(s[0]); !ok && s[0] != OwnLetter {
		return "", fmt.Errorf("%w: %.40q", ErrBadID, s)
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return "", fmt.Errorf("%w: %.40q", ErrBadID, s)
		}
	}
	return ID(s), nil
}

// Kind tells a built-in kind from the ID alone. A main session is a [MainKind].
func (id ID) Kind() (Kind, bool) {
	if id == "" {
		return "", false
	}
	return kindOfLetter(id[0])
}

func kindOfLetter(l byte) (Kind, bool) {
	if l == MainSessionLetter {
		return MainKind, true
	}
	for _, k := range Kinds() {
		if k.Letter() == l {
			return k, true
		}
	}
	return "", false
}

// AgentName returns the name under which an agent runs that was to be called want. Messages carry
// the name of their sender, so it shows nothing invisible, has no edges of blanks, and is not
// mistaken for the user, the main agent or the system: "user" becomes "agent-user".
func AgentName(want string) string {
	name := strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsGraphic(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, want)), " ")
	who, _, _ := strings.Cut(name, "@") // a teammate is who@team
	switch NameKey(who) {
	case "user", "theuser", "human", "main", "mainagent", "system", "assistant", "developer", "model", "drover", "tool":
		return "agent-" + name
	}
	return name
}

// NameKey is the same for names that a reader may take for each other: it has the letters and
// digits in lower case, and in their Latin form where they look like one. It is the name itself
// if that has neither.
func NameKey(name string) string {
	key := strings.Map(func(r rune) rune {
		if r >= '！' && r <= '～' { // full width
			r -= '！' - '!'
		}
		if r = unicode.ToLower(r); !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		if i := strings.IndexRune(alike, r); r > unicode.MaxASCII && i >= 0 {
			return rune(alike[i-1])
		}
		return r
	}, name)
	if key == "" {
		return name
	}
	return key
}

// alike has after each Latin letter one of another script that looks like it.
const alike = "aаaαcсdԁeеhһiіiıjјlӏmмnոoоoοpрpρsѕtтuυvνwԝxхyу"
