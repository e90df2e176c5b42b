import { expect, it } from 'vitest'
import { storedPreferences, USUAL } from './preferences.ts'

function shelf(text: string | null): {
  getItem: () => string | null
  setItem: (key: string, text: string) => void
} {
  let kept = text
  return {
    getItem: () => kept,
    setItem: (_, text) => {
      kept = text
    },
  }
}

it('what is chosen is there the next time', () => {
  const kept = shelf(null)
  const first = storedPreferences(() => kept)
  first.value = { ...first.value, axis: 'symlog', graphShare: 0.5 }

  expect(storedPreferences(() => kept).value).toEqual({ ...USUAL, axis: 'symlog', graphShare: 0.5 })
})

it('works where the browser allows no storage', () => {
  const preferences = storedPreferences(() => {
    throw new Error('SecurityError')
  })
  preferences.value = { ...preferences.value, lines: true }

  expect(preferences.value.lines).toBe(true)
})

it.each(['', 'null', '[1]', '{"axis": "cubic", "graphShare": 7, "lines": "yes", "new": 1}'])(
  'ignores the nonsense %j',
  (text) => {
    expect(storedPreferences(() => shelf(text)).value).toEqual(USUAL)
  },
)
