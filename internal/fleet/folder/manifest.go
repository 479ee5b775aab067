package folder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// version is the version of the formats of [Manifest] and [Return]. A [Manifest] of a folder without git has
// plainVersion: programs that know version 1 only would take it for a checkout.
const (
	version      = 1
	plainVersion = 2
)

// MaxManifest is the largest size in bytes of a [Manifest] or a [Return] as JSON.
const MaxManifest = 1 << 20

// Manifest says what travels to another machine. It is made by [Pack]; [Cache.Unpack] checks all of
// it.
type Manifest struct {
	V        int      `json:"v"`
	Repo     string   `json:"repo"`             // the first commit of the first parents of HEAD
	Format   string   `json:"object_format"`    // sha1 or sha256
	Commit   string   `json:"commit"`           // HEAD at home
	Index    string   `json:"index,omitempty"`  // Commit with the staged changes on top; empty: none
	Snapshot string   `json:"snapshot"`         // with all uncommitted changes on top; Commit if there are none
	Branch   string   `json:"branch,omitempty"` // its short name; empty: HEAD is detached
	Subdir   string   `json:"subdir,omitempty"` // in which the task works, relative to the top; empty: the top
	Name     string   `json:"user_name,omitempty"`
	Mail     string   `json:"user_email,omitempty"`
	Shallow  []string `json:"shallow,omitempty"` // commits whose parents do not travel, since they are not at home either
	Needs    []string `json:"needs,omitempty"`   // commits that the receiver has said that it has
	Parts    []Part   `json:"parts,omitempty"`   // of the pack; none: the receiver has all of it
	Notes    Notes    `json:"notes,omitempty"`   // what does not travel, or travels in another form; for people
	Plain    bool     `json:"plain,omitempty"`   // a folder without git: Commit is a commit of ours with all of its files
}

// Changes reports whether there is something on top of the commit.
func (m Manifest) Changes() bool { return m.Snapshot != m.Commit }

// Bytes is how much travels.
func (m Manifest) Bytes() int64 { return total(m.Parts) }

// ReadManifest reads a manifest as JSON and checks it.
func ReadManifest(data []byte, l Limits) (m Manifest, err error) {
	if err = decode(data, &m); err == nil {
		err = m.check(l.orDefault())
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest of a folder: %w", err)
	}
	return m, nil
}

func decode(data []byte, to any) error {
	if len(data) > MaxManifest {
		return fmt.Errorf("it has %s, the limit is %s", size(int64(len(data))), size(MaxManifest))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(to); err != nil {
		return err
	}
	if d.More() {
		return errors.New("something follows the JSON object")
	}
	return nil
}

func (m Manifest) check(l Limits) error {
	if m.V != version && !m.Plain || m.V != plainVersion && m.Plain {
		return fmt.Errorf("its format is %d, this program knows %d (use the same version on both machines)", m.V, version)
	}
	digits, err := digitsOf(m.Format)
	if err != nil {
		return err
	}
	for what, id := range map[string]string{"repo": m.Repo, "commit": m.Commit, "snapshot": m.Snapshot} {
		if !hexes(id, digits) {
			return fmt.Errorf("its %s %q is no object ID", what, short(id))
		}
	}
	if m.Index != "" && !hexes(m.Index, digits) {
		return fmt.Errorf("its index %q is no object ID", short(m.Index))
	}
	if err := checkIDs("needs", m.Needs, digits, maxHave); err != nil {
		return err
	}
	if err := checkIDs("shallow", m.Shallow, digits, maxShallow); err != nil {
		return err
	}
	if m.Subdir != "" && (checkPath(m.Subdir) != nil || !utf8.ValidString(m.Subdir)) {
		return fmt.Errorf("its subdirectory %.100q is not a plain path below the top", m.Subdir)
	}
	if !branchName(m.Branch) {
		return fmt.Errorf("its branch %.100q is no name of a branch", m.Branch)
	}
	for _, text := range []string{m.Name, m.Mail} {
		if !identity(text) {
			return fmt.Errorf("its user %.100q is no name", text)
		}
	}
	if err := m.Notes.check(); err != nil {
		return err
	}
	return checkParts(m.Parts, l.PackedBytes)
}

// digitsOf is the length of an object ID.
func digitsOf(format string) (int, error) {
	switch format {
	case "sha1":
		return 40, nil
	case "sha256":
		return 64, nil
	}
	return 0, fmt.Errorf("its object format %.20q is not known", format)
}

func checkIDs(what string, ids []string, digits, most int) error {
	if len(ids) > most {
		return fmt.Errorf("%s lists %d commits, the limit is %d", what, len(ids), most)
	}
	for _, id := range ids {
		if !hexes(id, digits) {
			return fmt.Errorf("%s lists %q, which is no object ID", what, short(id))
		}
	}
	return nil
}

func (notes Notes) check() error {
	if len(notes) > maxNotes {
		return fmt.Errorf("it has %d notes, the limit is %d", len(notes), maxNotes)
	}
	for _, n := range notes {
		if len(n) > maxNote {
			return fmt.Errorf("one of its notes has %d bytes, the limit is %d", len(n), maxNote)
		}
	}
	return nil
}

// inGit reports whether a path leads through a folder of git.
func inGit(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if strings.EqualFold(name, ".git") {
			return true
		}
	}
	return false
}

// branchName accepts what git check-ref-format does, and nothing that is not UTF-8.
func branchName(s string) bool {
	if s == "" {
		return true
	}
	if len(s) > 240 || !utf8.ValidString(s) || strings.HasPrefix(s, "-") || s == "HEAD" || strings.HasSuffix(s, ".") ||
		strings.Contains(s, "..") || strings.Contains(s, "@{") || strings.ContainsAny(s, " ~^:?*[\\\x7f") {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' {
			return false
		}
	}
	for name := range strings.SplitSeq(s, "/") {
		if name == "" || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".lock") {
			return false
		}
	}
	return true
}

// identity accepts a name or an address that can be written to a configuration.
func identity(s string) bool {
	return len(s) <= 200 && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
