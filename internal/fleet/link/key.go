package link

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/nats-io/nkeys"

	"github.com/drover-dev/drover/internal/platform/home"
)

// Key is a key by which a hub knows a worker again.
type Key struct {
	Public string
	pair   nkeys.KeyPair
}

// Sign signs the nonce of a hub.
func (k *Key) Sign(nonce []byte) ([]byte, error) { return k.pair.Sign(nonce) }

// NewKey makes a key that is kept nowhere.
func NewKey() (*Key, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return keyOf(pair)
}

func keyOf(pair nkeys.KeyPair) (*Key, error) {
	public, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	return &Key{public, pair}, nil
}

// maxSeed limits the file of a key, in bytes.
const maxSeed = 4 << 10

// ReadKey reads the key in a file, or makes one there, which only the user can read. The folder must exist.
func ReadKey(path string) (*Key, error) {
	seed, err := home.ReadFile(path, maxSeed)
	if errors.Is(err, fs.ErrNotExist) {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return nil, fmt.Errorf("make key: %w", err)
		}
		if seed, err = pair.Seed(); err != nil {
			return nil, fmt.Errorf("make key: %w", err)
		}
		if err := home.WriteAtomic(path, seed); err != nil {
			return nil, fmt.Errorf("make key: %w", err)
		}
		return keyOf(pair)
	}
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	pair, err := nkeys.FromSeed(seed)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w (remove it: a new one is made, and the hub must forget the name)", path, err)
	}
	return keyOf(pair)
}
