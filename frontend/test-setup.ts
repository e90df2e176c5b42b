/** For all test files. */
import fc from 'fast-check'

// The smallest counterexample of a property over doubles may take hours to find: report the best one.
fc.configureGlobal({ interruptAfterTimeLimit: 30_000 })
