// Package teleport moves an ended session to another folder or machine: one archive
// with its conversation, the conversations of its agents, the output of its tasks,
// its to-dos and the definitions of its agents.
//
// An archive is checked completely, by name, size and digest, before anything of it
// is written. No name in it leads out of the session's folder. Reading one uses
// bounded memory and disk. Values of known secrets are replaced by a mark. The
// package changes nothing of the exported session, runs nothing, and sets no
// variable; variables in an archive are only shown. The format is in
// docs/teleport.md.
package teleport

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// format is the version of the archive format.
const format = 1

// Limits of an archive.
const (
	maxFiles    = 20_000
	maxFile     = 4 << 30  // bytes
	maxTotal    = 16 << 30 // bytes
	maxManifest = 8 << 20
	freeBytes   = 64 << 20 // permitted size of the output for a small input
	maxRatio    = 300      // beyond that: bytes of output for a byte of input
)

const manifestName = "manifest.json"

// Manifest is the first entry of an archive.
type Manifest struct {
	Format     int               `json:"format"`
	Program    string            `json:"program_version"`
	Created    time.Time         `json:"created"`
	Source     string            `json:"source_session_id"`
	Agent      string            `json:"agent_id"` // the task whose conversation continues
	Title      string            `json:"title,omitempty"`
	Cwd        string            `json:"original_cwd,omitempty"`
	Env        map[string]string `json:"original_env,omitempty"`
	Transcript string            `json:"transcript_path"` // in the archive
	Secrets    int               `json:"secrets_left_out"`
	Files      []File            `json:"files"` // in the order of the archive
}

// File is one of the other entries.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Names of entries.
const (
	transcriptName = "transcript.jsonl"
	infoName       = "session.json"
	tasksName      = "tasks.jsonl"
)

func agentName(id task.ID) string  { return "subagents/agent-" + string(id) + ".jsonl" }
func outputName(id task.ID) string { return "tasks/" + string(id) + ".output" }

// CheckName refuses every name that an archive of Drover cannot have.
func CheckName(name string) error {
	between := func(before, after string) (string, bool) {
		rest, ok := strings.CutPrefix(name, before)
		if !ok {
			return "", false
		}
		return strings.CutSuffix(rest, after)
	}
	ok := name == transcriptName || name == infoName || name == tasksName || name == "todos/last"
	for _, form := range [][2]string{{"subagents/agent-", ".jsonl"}, {"tasks/", ".output"}} {
		if id, is := between(form[0], form[1]); is {
			_, err := task.ParseID(id)
			ok = ok || err == nil
		}
	}
	if number, is := between("todos/", ".json"); is {
		n, err := strconv.ParseUint(number, 10, 31)
		ok = ok || err == nil && strconv.FormatUint(n, 10) == number
	}
	if stem, is := between("definitions/", ".md"); is {
		ok = ok || stem != "" && len(stem) <= 100 && strings.Trim(stem, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
	}
	if !ok {
		return fmt.Errorf("%.80q is no name that an archive of a session has", name)
	}
	return nil
}

func (m *Manifest) check() error {
	if m.Format != format {
		return fmt.Errorf("its form is %d, this program knows %d", m.Format, format)
	}
	if len(m.Files) > maxFiles {
		return fmt.Errorf("it has %d files, %d are possible", len(m.Files), maxFiles)
	}
	seen, total := map[string]bool{}, int64(0)
	for _, f := range m.Files {
		if err := CheckName(f.Name); err != nil {
			return err
		}
		switch {
		case seen[f.Name]:
			return fmt.Errorf("%s is there twice", f.Name)
		case f.Bytes < 0 || f.Bytes > maxFile:
			return fmt.Errorf("%s has %d bytes, %d are possible", f.Name, f.Bytes, int64(maxFile))
		}
		seen[f.Name] = true
		if total += f.Bytes; total > maxTotal {
			return fmt.Errorf("it has more than %d bytes", int64(maxTotal))
		}
	}
	if !seen[m.Transcript] || m.Transcript != transcriptName {
		return errors.New("it has no conversation")
	}
	return nil
}

// write writes the archive of files in a folder. It sets their sizes and digests.
func write(w io.Writer, m Manifest, dir string) (Manifest, error) {
	for i := range m.Files {
		var err error
		if m.Files[i].Bytes, m.Files[i].SHA256, err = digest(filepath.Join(dir, m.Files[i].Name)); err != nil {
			return m, err
		}
	}
	if err := m.check(); err != nil {
		return m, err
	}
	head, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, err
	}
	if len(head) > maxManifest {
		return m, fmt.Errorf("its list of files has %d bytes, %d are possible", len(head), maxManifest)
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	entry := func(name string, size int64, from io.Reader) error {
		if err := t.WriteHeader(
			&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: m.Created, Format: tar.FormatPAX},
		); err != nil {
			return err
		}
		_, err := io.CopyN(t, from, size)
		return err
	}
	if err := entry(manifestName, int64(len(head)), bytes.NewReader(head)); err != nil {
		return m, err
	}
	for _, f := range m.Files {
		in, err := os.Open(filepath.Join(dir, f.Name))
		if err != nil {
			return m, err
		}
		err = entry(f.Name, f.Bytes, in)
		if err := errors.Join(err, in.Close()); err != nil {
			return m, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return m, errors.Join(t.Close(), z.Close())
}

func digest(path string) (int64, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return n, hex.EncodeToString(h.Sum(nil)), err
}

// Check reads a whole archive and returns its manifest, if everything is as the manifest says.
func Check(r io.Reader) (Manifest, error) {
	m, err := scan(r, func(File) (io.WriteCloser, error) { return nopCloser{io.Discard}, nil })
	if err != nil {
		return Manifest{}, fmt.Errorf("read archive: %w", err)
	}
	return m, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// extract writes the files of a checked archive into an empty folder, and checks them again,
// since the archive may have changed.
func extract(r io.Reader, top saferoot.Dir, dir string) (Manifest, error) {
	root, err := top.Root(dir)
	if err != nil {
		return Manifest{}, fmt.Errorf("extract archive: %w", err)
	}
	defer root.Close()
	m, err := scan(r, func(f File) (io.WriteCloser, error) {
		if err := root.MkdirAll(filepath.Dir(f.Name), 0o700); err != nil {
			return nil, err
		}
		return root.OpenFile(f.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	})
	if err != nil {
		return m, fmt.Errorf("extract archive: %w", err)
	}
	return m, nil
}

// scan reads an archive to its end and passes each file to a function.
func scan(r io.Reader, take func(File) (io.WriteCloser, error)) (m Manifest, err error) {
	in := &counter{r: r}
	z, err := gzip.NewReader(in)
	if err != nil {
		return m, fmt.Errorf("it is no gzip file: %w", err)
	}
	out := &meter{r: z, in: in}
	t := tar.NewReader(out)
	head, err := t.Next()
	if err != nil || head.Name != manifestName || head.Typeflag != tar.TypeReg || head.Size > maxManifest {
		return m, errors.Join(errors.New("it does not begin with a manifest"), err)
	}
	d := json.NewDecoder(t)
	if err := d.Decode(&m); err != nil {
		return m, fmt.Errorf("its manifest cannot be read: %w", err)
	}
	if err := m.check(); err != nil {
		return m, err
	}
	for _, f := range m.Files {
		if err := one(t, f, take); err != nil {
			return m, err
		}
	}
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return m, errors.New("something follows its last file")
	}
	return m, rest(out)
}

func one(t *tar.Reader, f File, take func(File) (io.WriteCloser, error)) error {
	head, err := t.Next()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("it ends before %s", f.Name)
	case err != nil:
		return err
	case head.Name != f.Name:
		return fmt.Errorf("%.80q stands where %s should be", head.Name, f.Name)
	case head.Typeflag != tar.TypeReg:
		return fmt.Errorf("%s is no regular file", f.Name)
	case head.Size != f.Bytes:
		return fmt.Errorf("%s has %d bytes, and should have %d", f.Name, head.Size, f.Bytes)
	}
	w, err := take(f)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, h), t)
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	if n != f.Bytes || !matches(h, f.SHA256) {
		return fmt.Errorf("%s is not what it was: its digest is another", f.Name)
	}
	return nil
}

func matches(h hash.Hash, want string) bool { return hex.EncodeToString(h.Sum(nil)) == want }

// rest reads what follows the last file: only zeros, and not many.
func rest(r io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(r, 1<<20))
	switch {
	case err != nil:
		return fmt.Errorf("its end cannot be read: %w", err)
	case len(data) == 1<<20 || len(bytes.Trim(data, "\x00")) > 0:
		return errors.New("something follows its last file")
	}
	return nil
}

// counter counts the input.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// meter rejects an output that is too large for its input.
type meter struct {
	r  io.Reader
	in *counter
	n  int64
}

var errBomb = errors.New("too much comes out of too little")

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if m.n += int64(n); m.n > freeBytes && (m.n-freeBytes)/maxRatio > m.in.n || m.n > maxTotal+freeBytes {
		return 0, errBomb
	}
	return n, err
}
