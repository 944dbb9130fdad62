! fortran_expect.f90 - a test in Fortran ends where what it expects does not hold.
module fortran_expect
    implicit none

contains

    subroutine expect(holds, what)
        logical, intent(in) :: holds
        character(len=*), intent(in) :: what

        if (.not. holds) then
            print '("not so: ", a)', what
            error stop 1
        end if
    end subroutine

end module
