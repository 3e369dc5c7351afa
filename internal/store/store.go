package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/network"
	"github.com/pandovm/pando/internal/operation"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

// readers is the number of connections that read. Reads are short and come
// from the page cache, so a few serve many callers.
const readers = 4

// Store is an open database. All methods are safe for concurrent use.
type Store struct {
	write, read *sql.DB
	now         func() time.Time
}

var (
	_ vm.Repository       = (*Store)(nil)
	_ vm.Journal          = (*Store)(nil)
	_ snapshot.Repository = (*Store)(nil)
	_ operation.Records   = (*Store)(nil)
	_ network.Repository  = (*Store)(nil)
	_ network.Machines    = (*Store)(nil)
)

// Open opens the database at path, creates it (0600) if it is missing and
// brings its schema up to date. It fails if the file is damaged or was written
// by a newer schema. The clock sets updated-at times, and created-at times of
// records that have none.
func Open(ctx context.Context, path string, now func() time.Time) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find database: %w", err)
	}
	if err := createPrivate(path); err != nil {
		return nil, err
	}
	s := &Store{now: now}
	if s.write, err = connect(path, 1, "_txlock=immediate"); err != nil {
		return nil, err
	}
	if s.read, err = connect(path, readers, "_pragma=query_only(1)"); err != nil {
		return nil, errors.Join(err, s.write.Close())
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), s.Close())
	}
	return s, nil
}

// Close waits for running queries, writes the log back into the file and
// releases it.
func (s *Store) Close() error {
	// The last connection to close folds the write-ahead log into the file;
	// a query-only one could not.
	if err := errors.Join(s.read.Close(), s.write.Close()); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}

func (s *Store) prepare(ctx context.Context) error {
	var verdict string
	if err := s.write.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict); err != nil {
		return fmt.Errorf("check database: %w", err)
	}
	if verdict != "ok" {
		return fmt.Errorf("check database: damaged: %s", verdict)
	}
	return s.migrate(ctx)
}

// createPrivate makes the file before SQLite does, which would let everyone
// read it. The log and its index inherit the mode.
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return f.Close()
}

func connect(path string, conns int, extra string) (*sql.DB, error) {
	// A path may hold ? and %, so it travels as a URI.
	name := url.URL{
		Scheme: "file", OmitHost: true, Path: path,
		RawQuery: "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)" +
			"&_pragma=foreign_keys(1)&_pragma=trusted_schema(0)&" + extra,
	}
	c, err := sqlite.NewConnector(name.String())
	if err != nil {
		return nil, fmt.Errorf("connect to database: %w", err)
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// inTx runs f in one transaction of db and commits if f returns nil. A panic
// in f rolls back.
func inTx(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", asFault(err))
	}
	defer tx.Rollback() //nolint:errcheck // After a commit it does nothing; otherwise f's error is the one to report.
	if err := f(tx); err != nil {
		return asFault(err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit transaction: %w", asFault(err))
	}
	return nil
}

// asFault gives the one database error that a caller can do something about
// its code and remedy.
func asFault(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) || e.Code()&0xff != sqlite3.SQLITE_FULL {
		return err
	}
	return &fault.Error{
		Code: api.CodeUnavailable, Reason: api.ReasonDiskFull, Err: err,
		Message: "the disk that holds the database is full",
		Remedy:  "free space in the data folder and try again",
	}
}

// slugFree fails if another record of the table has the slug. Writers are
// serialised, so nobody can take it before the transaction ends.
func slugFree(ctx context.Context, tx *sql.Tx, table, kind, slug, id string) error {
	if slug == "" {
		return nil
	}
	var holder string
	err := tx.QueryRowContext(ctx, `SELECT id FROM `+table+` WHERE slug = ? AND id <> ?`, slug, id).Scan(&holder)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look slug up: %w", err)
	}
	f := fault.Conflict(api.ReasonSlugTaken, "slug: %s is taken by the %s %s", strconv.Quote(slug), kind, holder)
	f.Field = "slug"
	return f.Hint("choose another slug, or delete %s first", holder)
}
