! trainer_alone.f90 - a curve learned by a small network in plain Fortran: its own arrays, backward
! and SGD. cddp.patch makes it data-parallel.
program trainer
    use, intrinsic :: iso_fortran_env, only: int64, real32, real64
    implicit none
    integer, parameter :: samples = 1000, batch = 50, steps = 200, hidden = 32, stride = 617
    real(real32), parameter :: learning_rate = 0.05
    real(real32), target :: w(hidden), b(hidden), v(hidden), c(1)
    real(real32), target :: w_grad(hidden), b_grad(hidden), v_grad(hidden), c_grad(1)
    real(real32) :: xs(samples), ys(samples)
    integer(int64) :: state = 1, first
    integer :: step, count
    real(real64) :: loss

    call make_curve()
    call fill(w)
    call fill(b)
    call fill(v)
    v = v * 0.3
    c = 0
    do step = 0, steps - 1
        first = int(step, int64) * batch
        count = batch
        loss = learn(first, count)
        w = w - learning_rate * w_grad
        b = b - learning_rate * b_grad
        v = v - learning_rate * v_grad
        c = c - learning_rate * c_grad
        if (mod(step, 20) == 0 .or. step == steps - 1) then
            print '("step ", i0, " loss ", es16.9)', step, loss / batch
        end if
    end do
    print '("weights ", z16.16)', checksum()

contains

    ! Uniform in [-1, 1): a generator of Lehmer's, whose products fit into 64 bits.
    real(real32) function next_random()
        state = mod(state * 48271_int64, 2147483647_int64)
        next_random = real(state, real32) / 1073741824.0 - 1.0
    end function

    subroutine fill(values)
        real(real32), intent(out) :: values(:)
        integer :: i

        do i = 1, size(values)
            values(i) = next_random()
        end do
    end subroutine

    subroutine make_curve()
        integer :: i

        do i = 1, samples
            xs(i) = 3.0 * next_random()
            ys(i) = sin(2.0 * xs(i)) + 0.05 * next_random()
        end do
    end subroutine

    ! The squared error's sum over count samples of the endless sequence; the gradients are those of
    ! its mean.
    real(real64) function learn(first, count)
        integer(int64), intent(in) :: first
        integer, intent(in) :: count
        real(real32) :: h(hidden), below(hidden), error, d
        integer :: n, at

        learn = 0
        w_grad = 0
        b_grad = 0
        v_grad = 0
        c_grad = 0
        do n = 0, count - 1
            at = int(mod((first + n) * stride, int(samples, int64))) + 1
            h = tanh(w * xs(at) + b)
            error = sum(v * h) + c(1) - ys(at)
            learn = learn + real(error, real64)**2
            d = 2.0 * error / count
            below = d * v * (1.0 - h * h)
            c_grad = c_grad + d
            v_grad = v_grad + d * h
            w_grad = w_grad + below * xs(at)
            b_grad = b_grad + below
        end do
    end function

    ! Equal bits, equal sums.
    integer(int64) function checksum()
        real(real32) :: all(3 * hidden + 1)
        integer :: i

        all = [w, b, v, c]
        checksum = 1
        do i = 1, size(all)
            checksum = ieor(ishftc(checksum, 7), int(transfer(all(i), 0), int64))
        end do
    end function
end program
