export function render(): void {}
