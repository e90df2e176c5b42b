/** Buttons, menus and dialogs that the views share. */
import { useSignal } from '@preact/signals'
import type { ComponentChildren, JSX, TargetedMouseEvent } from 'preact'
import { useEffect, useId, useLayoutEffect, useRef } from 'preact/hooks'
import { Icon, type IconName } from './icons.tsx'
import { dialogs, Overlays } from './overlays.tsx'

export interface IconButtonProps {
  readonly icon: IconName
  readonly label: string
  readonly onClick: (event: TargetedMouseEvent<HTMLButtonElement>) => void
  readonly disabled?: boolean
  readonly pressed?: boolean
  /** Shown in the tip behind the label. */
  readonly keys?: string
}

export function IconButton({
  icon,
  label,
  onClick,
  disabled = false,
  pressed,
  keys,
}: IconButtonProps): JSX.Element {
  return (
    <button
      type="button"
      class="icon-button"
      aria-label={label}
      title={keys === undefined ? label : `${label} (${keys})`}
      aria-pressed={pressed}
      disabled={disabled}
      onClick={onClick}
    >
      <Icon name={icon} />
    </button>
  )
}

export interface PopoverProps {
  /** Words on the button; with an `icon` they are its name only. */
  readonly label: string
  readonly icon?: IconName
  readonly class?: string
  readonly text?: ComponentChildren | undefined
  readonly side?: 'start' | 'end'
  readonly children: (close: () => void) => ComponentChildren
}

/** A button that opens a small sheet below it. Escape, a press outside, or leaving by Tab closes it. */
export function Popover({
  label,
  icon,
  text,
  children,
  side = 'start',
  class: name = '',
}: PopoverProps): JSX.Element {
  const open = useSignal(false)
  const root = useRef<HTMLDivElement>(null)
  const button = useRef<HTMLButtonElement>(null)
  const id = useId()
  const close = (): void => {
    open.value = false
    button.current?.focus()
  }
  useEffect(() => {
    if (!open.value) return
    const outside = (event: PointerEvent): void => {
      if (!root.current?.contains(event.target as Node)) open.value = false
    }
    document.addEventListener('pointerdown', outside, true)
    root.current?.querySelector<HTMLElement>('[data-autofocus]')?.focus()
    return () => document.removeEventListener('pointerdown', outside, true)
  }, [open.value])
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: Escape and focus are watched for the controls inside
    <div
      class={`popover ${name}`}
      ref={root}
      onKeyDown={(event) => {
        if (event.key !== 'Escape' || !open.value) return
        event.stopPropagation()
        close()
      }}
      onFocusOut={(event) => {
        const next = event.relatedTarget as Node | null
        if (next !== null && !root.current?.contains(next)) open.value = false
      }}
    >
      <button
        type="button"
        ref={button}
        class={icon === undefined || text !== undefined ? 'button' : 'icon-button'}
        aria-label={text === undefined && icon !== undefined ? label : undefined}
        title={label}
        aria-expanded={open.value}
        aria-controls={open.value ? id : undefined}
        onClick={() => {
          open.value = !open.value
        }}
      >
        {icon && <Icon name={icon} />}
        {text ?? (icon === undefined && label)}
      </button>
      {open.value && (
        <div class={`sheet sheet-${side}`} id={id}>
          {children(close)}
        </div>
      )}
    </div>
  )
}

export interface ChoiceProps<T extends string> {
  readonly label: string
  readonly options: readonly (readonly [value: T, text: string])[]
  readonly value: T
  readonly onChange: (value: T) => void
}

/** One of few, all in view. */
export function Choice<T extends string>({ label, options, value, onChange }: ChoiceProps<T>): JSX.Element {
  const name = useId()
  return (
    <fieldset class="choice">
      <legend>{label}</legend>
      <div class="choice-options">
        {options.map(([option, text]) => (
          <label key={option} class={option === value ? 'chosen' : ''}>
            <input type="radio" name={name} checked={option === value} onChange={() => onChange(option)} />
            {text}
          </label>
        ))}
      </div>
    </fieldset>
  )
}

export interface SwitchProps {
  readonly label: string
  readonly value: boolean
  readonly onChange: (value: boolean) => void
}

export function Switch({ label, value, onChange }: SwitchProps): JSX.Element {
  return (
    <label class="switch">
      <input type="checkbox" checked={value} onChange={(event) => onChange(event.currentTarget.checked)} />
      {label}
    </label>
  )
}

export interface DialogProps {
  readonly title: string
  readonly class?: string
  readonly onClose: () => void
  readonly children: ComponentChildren
  /** Further controls in the title bar. */
  readonly tools?: ComponentChildren
}

/** A modal dialog; mounted means open. The browser keeps the focus inside and gives it back. */
export function Dialog({ title, class: name = '', onClose, children, tools }: DialogProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null)
  const id = useId()
  // Before it is painted: Escape is for a dialog as soon as it is there.
  useLayoutEffect(() => {
    dialog.current?.showModal()
    dialogs.value++
    return () => void dialogs.value--
  }, [])
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes a dialog by itself
    <dialog
      ref={dialog}
      class={`dialog ${name}`}
      aria-labelledby={id}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === dialog.current) dialog.current?.close()
      }}
    >
      <div class="dialog-body">
        <header class="dialog-head">
          <h2 id={id}>{title}</h2>
          {tools}
          <IconButton icon="close" label="Close" keys="Esc" onClick={() => dialog.current?.close()} />
        </header>
        {children}
      </div>
      <Overlays inside />
    </dialog>
  )
}
