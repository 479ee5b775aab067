package overssh

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Words with which the lines of the script begin: what files of the user's shell print may come before.
const mark = "drover-worker "

// script runs on the other machine. It says what machine that is, reads which program is wanted, takes a
// copy if that is not there, and becomes the bridge. A copy has a name of its own until its checksum is
// right, so an incomplete copy is never used.
//
// It is one line without single quotes, backslashes and exclamation marks, so that all shells of users,
// csh and fish too, pass it on as it is.
const script = `umask 077; ` +
	`say() { echo "` + mark + `$*"; }; ` +
	`say hello $(uname -s) $(uname -m); ` +
	`read -r want size own name || exit 1; ` +
	`all="${XDG_CACHE_HOME:-$HOME/.cache}/drover/bin"; file="$all/$want/drover"; copy="$all/.$own"; ` +
	`bad() { rm -f "$copy"; say bad $1; exit 1; }; ` +
	`if command -v sha256sum >/dev/null 2>&1; then sum() { sha256sum; }; ` +
	`elif command -v shasum >/dev/null 2>&1; then sum() { shasum -a 256; }; ` +
	`else bad tool; fi; ` +
	`same() { got=$(sum <"$1"); test "${got%% *}" = "$want"; }; ` +
	`if test -x "$file" && same "$file"; then say have; touch -c "$file"; else ` +
	`mkdir -p "$all" || bad folder; say want; ` +
	`head -c "$size" >"$copy" || bad write; ` +
	`same "$copy" || bad sum; ` +
	`chmod 700 "$copy" && "$copy" version </dev/null >/dev/null || bad run; ` +
	`mkdir -p "$all/$want" && mv -f "$copy" "$file" || bad folder; say copied; fi; ` +
	`exec "$file" worker --stdio --name "$name"`

// bads are what the script says of a failure, and what to do about it. What the tools there said is on stderr.
//
//rules:constant never changed after this line
var bads = map[string]string{
	"tool":   "neither sha256sum nor shasum is there to check the copy with (install coreutils there)",
	"folder": "its folder cannot be written (the program is kept in drover/bin below $XDG_CACHE_HOME or ~/.cache there)",
	"write":  "it could not be written to the end (is the disk full there?)",
	"sum":    "it came with another checksum (try again)",
	"run": "it cannot be run there (if that file system forbids it, noexec, set XDG_CACHE_HOME there to a folder of " +
		"another one)",
}

// maxNoise limits what may come before the first line of the script, in bytes.
const maxNoise = 64 << 10

// hear reads a line of the script. At the end its error is io.EOF.
func hear(from *bufio.Reader) ([]string, error) {
	for read := 0; read < maxNoise; {
		line, err := from.ReadSlice('\n')
		read += len(line)
		if text, ok := strings.CutPrefix(string(line), mark); ok && err == nil {
			if words := strings.Fields(text); len(words) > 0 {
				return words, nil
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("its shell prints more than %d bytes before it does what it is told", maxNoise)
}

// prepare has the program ready on the other machine. Everything that is read and written after it belongs to the
// bridge. Its error has io.EOF if ssh or the script has ended without a word.
func prepare(in io.Writer, out *bufio.Reader, b *Binary, host, name string, tell func(string)) error {
	words, err := hear(out)
	if err != nil {
		return err
	}
	if len(words) != 3 || words[0] != "hello" {
		return fmt.Errorf("%s said %.80q", host, strings.Join(words, " "))
	}
	if system := systemOf(words[1], words[2]); system != b.System {
		return fmt.Errorf("%s runs %s, and %s is for %s (give the drover of a release for %s with --binary FILE)",
			host, system, b.Name, b.System, system)
	}
	_, failed := fmt.Fprintln(in, b.Sum, b.Size, rand.Text(), name)
	if words, err = hear(out); err != nil {
		return errors.Join(err, failed)
	}
	if words[0] == "want" {
		began := time.Now()
		tell(fmt.Sprintf("copying %s to %s (%s)", b.Name, host, megabytes(b.Size)))
		_, failed := io.Copy(in, b.content()) // the script says why it reads no more
		if words, err = hear(out); err != nil {
			return errors.Join(err, failed)
		}
		if words[0] == "copied" {
			tell(fmt.Sprintf("copied %s to %s (%s, %.1f s)", b.Name, host, megabytes(b.Size), time.Since(began).Seconds()))
			return nil
		}
	}
	switch {
	case words[0] == "have":
		return nil
	case words[0] == "bad" && len(words) == 2 && bads[words[1]] != "":
		return fmt.Errorf("copy %s to %s: %s", b.Name, host, bads[words[1]])
	}
	return fmt.Errorf("%s said %.80q", host, strings.Join(words, " "))
}

func megabytes(n int64) string { return fmt.Sprintf("%d MB", (n+500_000)/1_000_000) }
