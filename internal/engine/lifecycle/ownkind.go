package lifecycle

import (
	"errors"
	"fmt"

	"github.com/drover-dev/drover/task"
)

// maxKind is the most bytes of the name of a kind.
const maxKind = 40

// ErrBadKind is returned for text that cannot name a kind.
var ErrBadKind = errors.New("a kind is named by 2 to 40 of a-z, 0-9 and _, a letter first")

// CheckOwn refuses an invalid kind of a driver that a program adds. Such work
// ends with its host, since no other host has its driver.
func CheckOwn(k task.Kind, t task.Traits) error {
	if err := checkKind(k); err != nil {
		return err
	}
	switch {
	case t.Work == task.ByAgent || t.Work == task.BySteps:
		return fmt.Errorf("kind %s: traits: work by %s is for built-in kinds only", k, t.Work)
	case t.Resumable:
		return fmt.Errorf("kind %s: traits: only built-in kinds are resumable", k)
	case t.Elsewhere != task.InHost || t.Wait == task.WaitAlways:
		return fmt.Errorf("kind %s: traits: its work ends with its host", k)
	case len(t.Noun)+len(t.Subject)+len(t.Pill.Noun)+len(t.Pill.Mark)+len(t.Pill.Label) > maxTraits:
		return fmt.Errorf("kind %s: traits: the texts are longer than %d bytes", k, maxTraits)
	}
	return nil
}

// maxTraits is the most bytes of the texts of traits, which stand in every record.
const maxTraits = 200

func checkKind(k task.Kind) error {
	if len(k) < 2 || len(k) > maxKind || k[0] < 'a' || k[0] > 'z' {
		return fmt.Errorf("%w: %.60q", ErrBadKind, string(k))
	}
	for i := range len(k) {
		if c := k[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return fmt.Errorf("%w: %.60q", ErrBadKind, string(k))
		}
	}
	return nil
}
